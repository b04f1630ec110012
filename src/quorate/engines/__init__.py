"""Where workers live: in virtual time, in processes of this machine, on a cluster."""
