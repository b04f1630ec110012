"""Rules that combine draws of subposteriors into draws of the posterior, one file each."""
