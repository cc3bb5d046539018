package convert

import (
	"fmt"
	"math"
	"sync"

	"github.com/karat-run/karat/internal/quant"
	"github.com/karat-run/karat/internal/tensor"
)

// loss measures what weights lose.
type loss struct {
	mu              sync.Mutex
	largest         float64 // difference
	lost, all       float64 // sums of squares
	differ, weights int
}

// add adds values written as b of a type.
func (l *loss) add(d tensor.DType, b []byte, v []float32) error {
	w := make([]float32, len(v))
	if err := quant.Dequantize(d, w, b); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, x := range v {
		diff := math.Abs(float64(w[i]) - float64(x))
		if diff > 0 {
			l.differ++
		}
		l.largest, l.lost, l.all = max(l.largest, diff), l.lost+diff*diff, l.all+float64(x)*float64(x)
	}
	l.weights += len(v)
	return nil
}

// note describes the loss of weights named so; "" where there is none.
func (l *loss) note(weights, to string) string {
	if l.differ == 0 {
		return ""
	}
	return fmt.Sprintf("%s lose by %s: the largest error is %.3g, the root mean square %.3g, %.3g %% of theirs; "+
		"%d of %d numbers differ", weights, to, l.largest, math.Sqrt(l.lost/float64(l.weights)),
		100*math.Sqrt(l.lost/l.all), l.differ, l.weights)
}
