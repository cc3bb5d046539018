package main

import "os"

var (
	hangup  []os.Signal // none: there is no such signal here
	suspend func()      // nil: no program can be stopped here
)

// isBrokenPipe returns false: there are no pipes here.
func isBrokenPipe(error) bool { return false }
