"""Label sets in every form that users keep them in: indicators, sets of names, data frames."""
