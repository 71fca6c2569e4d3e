"""The style of the documents: how long sentences are, and which words a reader stumbles over."""
