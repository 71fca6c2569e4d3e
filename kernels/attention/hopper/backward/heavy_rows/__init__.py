"""Corrects the gradients of rows in which one weight is heavy."""
