"""Two commits or two versions, compared."""
