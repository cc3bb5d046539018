package jpeg

import (
	"errors"
	"fmt"
)

// band is the part of the coefficients that a scan has.
type band struct {
	from, to int  // coefficients in zigzag order
	low      uint // bits still to come
	refine   bool // the scan has one further bit of coefficients met before
}

// scan reads a scan's header, B.2.3, and its data.
func (d *decoder) scan(b []byte) error {
	if d.comps == nil {
		return errors.New("a scan before the frame")
	}
	if d.scans++; d.scans > maxScans {
		return fmt.Errorf("more than %d scans", maxScans)
	}
	if len(b) < 1 || b[0] < 1 || b[0] > 4 || len(b) != 4+2*int(b[0]) {
		return errors.New("a scan's header has another length than its components")
	}
	var comps []*component
	blocks := 0
	for i := range int(b[0]) {
		id, tables := b[1+2*i], b[2+2*i]
		c := d.component(id)
		if c == nil || tables>>4 > 3 || tables&15 > 3 {
			return fmt.Errorf("a scan of component %d with tables %#x", id, tables)
		}
		for _, x := range comps {
			if x == c {
				return fmt.Errorf("component %d comes twice in a scan", id)
			}
		}
		c.dc, c.ac = d.huffmans[0][tables>>4], d.huffmans[1][tables&15]
		comps, blocks = append(comps, c), blocks+c.h*c.v
	}
	if len(comps) > 1 && blocks > 10 {
		return fmt.Errorf("%d blocks in an MCU, more than 10", blocks)
	}
	tail := b[len(b)-3:]
	x := band{int(tail[0]), int(tail[1]), uint(tail[2] & 15), tail[2]>>4 != 0}
	if !d.progressive {
		x = band{0, 63, 0, false}
	} else if x.from > x.to || x.to > 63 || (x.from == 0) != (x.to == 0) || x.from > 0 && len(comps) > 1 ||
		x.low > 13 || x.refine && uint(tail[2]>>4) != x.low+1 {
		return fmt.Errorf("a scan of the coefficients %d to %d, bits %#x", x.from, x.to, tail[2])
	}
	for _, c := range comps {
		if x.from == 0 && !x.refine && c.dc == nil || x.to > 0 && c.ac == nil {
			return fmt.Errorf("component %d has no table of codes", c.id)
		}
		if err := d.begin(c); err != nil {
			return err
		}
	}
	return d.scanData(comps, x)
}

func (d *decoder) component(id byte) *component {
	for i := range d.comps {
		if d.comps[i].id == id {
			return &d.comps[i]
		}
	}
	return nil
}

// begin makes memory for a component's first scan.
func (d *decoder) begin(c *component) error {
	switch {
	case d.quants[c.table] == nil:
		return fmt.Errorf("component %d has no table of quantization", c.id)
	case d.progressive && c.coefs == nil:
		c.coefs = make([]int16, c.across*c.down*64)
	case !d.progressive && c.samples != nil:
		return fmt.Errorf("component %d has two scans", c.id)
	case !d.progressive:
		c.samples = make([]byte, c.across*c.down*64)
	}
	return nil
}

// complete reports whether all components had a scan.
func (d *decoder) complete() bool {
	for i := range d.comps {
		if d.comps[i].coefs == nil && d.comps[i].samples == nil {
			return false
		}
	}
	return len(d.comps) > 0
}

// scanData decodes a scan's MCUs.
func (d *decoder) scanData(comps []*component, x band) error {
	mcux, mcuy := d.mcux, d.mcuy
	alone := len(comps) == 1
	if alone { // the scan of one component has no padding but within blocks
		mcux, mcuy = ceil(comps[0].width, 8), ceil(comps[0].height, 8)
	}
	d.reset(comps)
	for i := range mcux * mcuy {
		if d.stop != nil && i%mcux == 0 {
			if err := d.stop(); err != nil {
				return err
			}
		}
		if d.restart > 0 && i > 0 && i%d.restart == 0 {
			if err := d.restarted(byte(i/d.restart-1)&7 + rst0); err != nil {
				return err
			}
			d.reset(comps)
		}
		for _, c := range comps {
			h, v := c.h, c.v
			if alone {
				h, v = 1, 1
			}
			for k := range h * v {
				at := (i/mcux*v+k/h)*c.across + i%mcux*h + k%h
				if err := d.block(c, at, x); err != nil {
					return fmt.Errorf("MCU %d of %d: %w", i, mcux*mcuy, err)
				}
			}
		}
		if d.bits.over > d.bits.n { // bits made up were used
			return errShort
		}
	}
	d.data = d.bits.data
	return nil
}

// reset begins data at a byte's boundary.
func (d *decoder) reset(comps []*component) {
	d.bits, d.run = bits{data: d.data}, 0
	for _, c := range comps {
		c.predicted = 0
	}
}

// restarted takes the restart marker behind the data read.
func (d *decoder) restarted(marker byte) error {
	b := d.bits.data
	for len(b) > 1 && b[0] == 0xff && b[1] == 0xff { // fill bytes
		b = b[1:]
	}
	if len(b) < 2 {
		return errShort
	}
	if b[0] != 0xff || b[1] != marker {
		return fmt.Errorf("the restart marker %#x is missing", marker)
	}
	d.data = b[2:]
	return nil
}

// block decodes the part of a block that the scan has.
func (d *decoder) block(c *component, at int, x band) error {
	if !d.progressive {
		var block [64]int16
		if err := d.baseline(c, &block); err != nil {
			return err
		}
		inverse(c.place(at), c.across*8, &block, d.quants[c.table])
		return nil
	}
	block := (*[64]int16)(c.coefs[at*64:])
	switch {
	case x.from == 0 && x.refine:
		if d.bits.take(1) != 0 {
			block[0] |= 1 << x.low
		}
		return nil
	case x.from == 0:
		diff, err := d.dcDifference(c)
		block[0] = int16(diff << x.low)
		return err
	case x.refine:
		return d.refineBand(c, block, x)
	}
	return d.firstBand(c, block, x)
}

// place returns the samples from a block's first on.
func (c *component) place(at int) []byte { return c.samples[at/c.across*c.across*64+at%c.across*8:] }

// dcDifference returns the next DC value.
func (d *decoder) dcDifference(c *component) (int, error) {
	n, err := d.bits.symbol(c.dc)
	if err != nil {
		return 0, err
	}
	if n > 15 {
		return 0, fmt.Errorf("a difference of %d bits", n)
	}
	c.predicted += int(d.bits.extend(int(n)))
	return c.predicted, nil
}

// baseline decodes a whole block, F.2.2.
func (d *decoder) baseline(c *component, block *[64]int16) error {
	dc, err := d.dcDifference(c)
	if err != nil {
		return err
	}
	block[0] = int16(dc)
	for k := 1; k < 64; k++ {
		s, err := d.bits.symbol(c.ac)
		if err != nil {
			return err
		}
		run, n := int(s>>4), int(s&15)
		if n == 0 {
			if run != 15 {
				break
			}
			k += 15
			continue
		}
		if k += run; k > 63 {
			return errors.New("a run of zeros leaves the block")
		}
		block[zigzag[k]] = int16(d.bits.extend(n))
	}
	return nil
}

// firstBand decodes the first bits of a band, G.1.2.2.
func (d *decoder) firstBand(c *component, block *[64]int16, x band) error {
	if d.run > 0 {
		d.run--
		return nil
	}
	for k := x.from; k <= x.to; k++ {
		s, err := d.bits.symbol(c.ac)
		if err != nil {
			return err
		}
		run, n := int(s>>4), int(s&15)
		switch {
		case n == 0 && run < 15:
			d.run = 1<<run - 1 + int(d.bits.take(run))
			return nil
		case n == 0:
			k += 15
			continue
		}
		if k += run; k > x.to {
			return errors.New("a run of zeros leaves the band")
		}
		block[zigzag[k]] = int16(d.bits.extend(n) << x.low)
	}
	return nil
}

// refineBand decodes one further bit of a band, G.1.2.3.
func (d *decoder) refineBand(c *component, block *[64]int16, x band) error {
	bit := int16(1) << x.low
	k := x.from
	if d.run == 0 {
	band:
		for ; k <= x.to; k++ {
			s, err := d.bits.symbol(c.ac)
			if err != nil {
				return err
			}
			run, n := int(s>>4), int(s&15)
			var v int16
			switch {
			case n > 1:
				return fmt.Errorf("a new coefficient of %d bits in a scan of single bits", n)
			case n == 1:
				if v = -bit; d.bits.take(1) != 0 {
					v = bit
				}
			case run < 15:
				d.run = 1<<run + int(d.bits.take(run))
				break band
			}
			for ; k <= x.to; k++ { // skips run zeros, and refines what lies between
				p := &block[zigzag[k]]
				if *p != 0 {
					d.refineOne(p, bit)
				} else if run--; run < 0 {
					break
				}
			}
			if v != 0 {
				if k > x.to {
					return errors.New("a run of zeros leaves the band")
				}
				block[zigzag[k]] = v
			}
		}
	}
	if d.run > 0 {
		for ; k <= x.to; k++ {
			if p := &block[zigzag[k]]; *p != 0 {
				d.refineOne(p, bit)
			}
		}
		d.run--
	}
	return nil
}

// refineOne adds a coefficient's next bit.
func (d *decoder) refineOne(p *int16, bit int16) {
	if d.bits.take(1) == 0 || *p&bit != 0 {
		return
	}
	if *p >= 0 {
		*p += bit
	} else {
		*p -= bit
	}
}
