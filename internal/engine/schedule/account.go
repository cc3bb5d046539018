package schedule

import "math"

// account is the share of the callers with one key.
type account struct {
	served int64 // tokens, computed or promised
	works  int   // queued
	step   int   // last step with a work of the key
}

// account returns a key's account. The account of a key that was not active for a while begins with as much as the
// account that had the least: nobody saves up shares.
func (s *Schedule) account(key string) *account {
	a := s.accounts[key]
	if a != nil && a.isActive(s.Steps) {
		return a
	}
	least := int64(math.MaxInt64)
	for k, x := range s.accounts {
		if x.isActive(s.Steps) {
			least = min(least, x.served)
		} else if k != key {
			delete(s.accounts, k)
		}
	}
	if a == nil {
		a = &account{}
		if s.accounts == nil {
			s.accounts = map[string]*account{}
		}
		s.accounts[key] = a
	}
	if least < math.MaxInt64 {
		a.served = max(a.served, least)
	}
	a.step = s.Steps
	return a
}

// isActive reports whether a has works, or had one not long before a step.
func (a *account) isActive(step int) bool { return a.works > 0 || step-a.step < patience }

// Served returns the tokens on a key's account.
func (s *Schedule) Served(key string) int64 { return s.account(key).served }

// Charge puts work beside the steps on a key's account, in tokens.
func (s *Schedule) Charge(key string, tokens int) { s.account(key).served += int64(tokens) }

// charge puts w's tokens on the account of its key, once.
func (w *Work) charge() {
	if !w.charged {
		w.charged = true
		w.Seq.account.served += int64(w.Tokens)
	}
}
