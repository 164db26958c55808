"""Programs written for other libraries, run by this one."""
