"""What is attacked: each target turns bytes into hostile input, and raises if the input does harm."""
