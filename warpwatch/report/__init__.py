"""The site: static pages that open from the file system, work without scripts and load nothing."""
