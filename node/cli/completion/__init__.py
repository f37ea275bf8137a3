"""What a shell is told when TAB is pressed, and the script with which it asks."""
