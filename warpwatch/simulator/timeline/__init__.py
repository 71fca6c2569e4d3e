"""What the partitions, barriers and copies of one program did, as a picture."""
