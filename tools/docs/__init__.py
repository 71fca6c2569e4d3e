"""Programs that check the documents and write what of them is generated."""
