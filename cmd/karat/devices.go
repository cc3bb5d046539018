package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/karat-run/karat/internal/backend/numerics"
	"github.com/karat-run/karat/internal/backend/webgpu/gpu"
	"github.com/karat-run/karat/internal/simd"
	"github.com/karat-run/karat/internal/sysinfo"
	"github.com/spf13/cobra"
)

// devices is what devices tells, and its JSON.
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
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the devices that can run a model",
		Long: `Devices lists the CPU, and the GPUs that WebGPU finds, with their names for --backend.
Real GPUs come first. Programs that stand in for a GPU come last, and their kind is cpu.
On Linux and Windows a GPU needs its Vulkan driver, on macOS nothing. KARAT_WEBGPU_LIB may
name a shared library of webgpu.h, such as Dawn; the list then has the GPUs that it finds.`,
		Example: `  karat devices
  karat run --backend webgpu:0 "The color of the sky is"`,
		Args: byUse,
		RunE: func(c *cobra.Command, _ []string) error {
			d, err := findDevices()
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(d)
			}
			return d.write(c.OutOrStdout())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON, with the GPUs' limits")
	return c
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
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "cpu\t%d threads\t%s\n", d.CPU.Threads, d.CPU.Kernels)
	for i, g := range d.GPUs {
		stamps := "no time stamps"
		if g.Timestamps {
			stamps = "time stamps"
		}
		fmt.Fprintf(w, "webgpu:%d\t%s\t%s, %s, %s%s\n", i, oneLine(g.Name), g.Kind, oneLine(g.Driver), stamps, reached(g))
	}
	if d.Why != "" {
		fmt.Fprintf(w, "webgpu\tnone\t%s\n", oneLine(d.Why))
	}
	return w.Flush()
}

// reached tells of what a library of webgpu.h adds.
func reached(g gpu.Adapter) string {
	if g.Library == "" {
		return ""
	}
	s := ", through " + oneLine(g.Library)
	if m := g.Matrices; m != nil {
		s += fmt.Sprintf(", matrix units of %v", m.Shapes)
	}
	return s
}

// deviceName is what computes with n, in a few words.
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
