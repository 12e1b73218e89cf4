"""Checks of scikit-learn that the library does not pass, and why."""

# by the checks of scikit-learn 1.9, an array of another library than that of the fit is refused by
# a ValueError that names both; here NumPy is taken for array-api-strict, and PyTorch's own
# TypeError is raised
OTHER_LIBRARY = {"check_array_api_same_namespace": "arrays of another library are not refused"}
