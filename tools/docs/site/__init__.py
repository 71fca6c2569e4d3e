"""The site of the documents: its navigation, its links, and its locked packages."""
