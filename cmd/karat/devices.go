package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/cobra"
)

// devices is the output of devices, and its JSON.
type devices struct {
	CPU  cpuDevice     `json:"cpu"`
	GPUs []gpu.Adapter `json:"gpus"`
	Why  string        `json:"why_no_gpu,omitempty"`
}

type cpuDevice struct {
	Kernels string `json:"kernels"` // the tier of instructions
	Threads int    `json:"threads"`
}

func newDevicesCommand() *cobra.Command {
	var asJSON bool
	c := define("devices", func(x *call) error {
		d, err := findDevices()
		switch {
		case err != nil:
			return err
		case asJSON:
			return x.json(d)
		}
		return d.write(x.out)
	})
	c.flags("json", &asJSON)
	return c.Command
}

func findDevices() (*devices, error) {
	if err := simd.Err(); err != nil {
		return nil, err
	}
	d := &devices{CPU: cpuDevice{simd.Tier(), sysinfo.Threads()}, GPUs: []gpu.Adapter{}}
	all, err := gpu.Adapters()
	if errors.Is(err, gpu.ErrNone) {
		d.Why = err.Error()
		return d, nil
	}
	d.GPUs = append(d.GPUs, all...)
	return d, err
}

func (d *devices) write(out io.Writer) error {
	w := newTable(out)
	fmt.Fprintf(w, "cpu\t%d threads\t%s\n", d.CPU.Threads, d.CPU.Kernels)
	for i, g := range d.GPUs {
		stamps := "no time stamps"
		if g.Timestamps {
			stamps = "time stamps"
		}
		through := ""
		if g.Library != "" {
			through = ", through " + oneLine(g.Library)
			if m := g.Matrices; m != nil {
				through += fmt.Sprintf(", matrix units of %v", m.Shapes)
			}
		}
		fmt.Fprintf(w, "webgpu:%d\t%s\t%s, %s, %s%s\n", i, oneLine(g.Name), g.Kind, oneLine(g.Driver), stamps, through)
	}
	if d.Why != "" {
		fmt.Fprintf(w, "webgpu\tnone\t%s\n", oneLine(d.Why))
	}
	return w.Flush()
}

// deviceName names the device computing n, in a few words.
func deviceName(n numerics.Numerics) (string, error) {
	if n.GPU == 0 {
		return "CPU " + simd.Tier() + " " + n.Precision, nil
	}
	all, err := gpu.Adapters()
	if err == nil && n.GPU > len(all) {
		err = gpu.Missing(n.GPU-1, len(all))
	}
	if err != nil {
		return "", err
	}
	return "WebGPU " + oneLine(all[n.GPU-1].Name) + " " + n.Precision, nil
}
