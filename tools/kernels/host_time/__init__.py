"""What one call costs the host, down to the driver: ours, torch's and FlashAttention-3's."""
