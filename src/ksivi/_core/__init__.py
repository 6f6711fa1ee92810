"""What every package may import: checks of arguments, precision, files, compilation, devices."""
