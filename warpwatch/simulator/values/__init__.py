"""Values as registers hold them, and the PTX that computes with them."""
