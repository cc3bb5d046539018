//go:build !unix

package parity

// processor is how many seconds of processor time this program has taken: nobody says.
func processor() float64 { return 0 }
