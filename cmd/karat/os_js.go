package main

import "os"

var (
	hangup  []os.Signal // none: there is no such signal here
	suspend func()      // nil: no program can be stopped here
)

// brokenPipe returns false: there are no pipes here.
func brokenPipe(error) bool { return false }
