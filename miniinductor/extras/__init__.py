"""The loop IR that runs (`interpreter`) and prints (`printed_ir`), and calls that stay whole while
tracing (`whole_calls`)."""
