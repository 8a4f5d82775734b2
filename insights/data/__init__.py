"""What the views show, read from the folder of a run: plain data, no pictures. Nothing here can change a run."""
