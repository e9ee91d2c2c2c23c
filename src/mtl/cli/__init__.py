"""The command line `mtl`: one file per group of commands."""
