"""Evaluation as numbers, charts and pages."""
