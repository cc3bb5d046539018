package main

import "os"

// hangup: there is no such signal here.
var hangup []os.Signal
