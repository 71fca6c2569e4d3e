"""The site: static pages that open from the file system, and load nothing of others."""
