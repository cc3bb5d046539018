package lab

// Distance measures the logits of some positions against the golden logits.
type Distance struct {
	Positions int `json:"positions"` // compared

	MaxAbsDiff     Number `json:"max_abs_diff"`
	LastMaxAbsDiff Number `json:"last_max_abs_diff"` // at the prompts' last positions
	MeanAbsDiff    Number `json:"mean_abs_diff"`
	CosineMin      Number `json:"cosine_min"` // of the worst position
	KLMean         Number `json:"kl_mean"`    // of the record's distribution from the golden one, in nats
	KLMax          Number `json:"kl_max"`     // of the worst position
	Top1           Number `json:"top1"`       // mean share of golden's best token, 5 and 10 best tokens
	Top5           Number `json:"top5"`       // also the record's
	Top10          Number `json:"top10"`
}

// distance returns the distance of a single position's logits. The caller sets LastMaxAbsDiff.
func distance(g, r []float64) Distance {
	largest, mean := AbsDiff(g, r)
	kl := Number(KL(g, r))
	return Distance{
		Positions: 1, MaxAbsDiff: Number(largest), MeanAbsDiff: Number(mean),
		CosineMin: Number(Cosine(g, r)), KLMean: kl,
		KLMax: kl,
		Top1:  Number(Overlap(g, r, 1)), Top5: Number(Overlap(g, r, 5)), Top10: Number(Overlap(g, r, 10)),
	}
}

// add includes other positions.
func (d *Distance) add(o Distance) {
	if d.Positions == 0 {
		*d = o
		return
	}
	n, m := Number(d.Positions), Number(o.Positions)
	mean := func(a *Number, b Number) { *a = (*a*n + b*m) / (n + m) }
	mean(&d.MeanAbsDiff, o.MeanAbsDiff)
	mean(&d.KLMean, o.KLMean)
	mean(&d.Top1, o.Top1)
	mean(&d.Top5, o.Top5)
	mean(&d.Top10, o.Top10)
	d.MaxAbsDiff = max(d.MaxAbsDiff, o.MaxAbsDiff) // NaN if one is, and so below
	d.LastMaxAbsDiff = max(d.LastMaxAbsDiff, o.LastMaxAbsDiff)
	d.CosineMin = min(d.CosineMin, o.CosineMin)
	d.KLMax = max(d.KLMax, o.KLMax)
	d.Positions += o.Positions
}
