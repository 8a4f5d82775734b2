"""Exact rewrites of the float graph, for what the runtime fuses in fp32 and no longer finds between Q and DQ."""
