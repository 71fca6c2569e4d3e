"""Charts drawn as SVG while the site is built."""
