"""Where the machine is taken away: runs end with a checkpoint first, and runs that have ended are kept in a bucket."""
