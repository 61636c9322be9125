package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock"
)

// Check is one property that every backend keeps.
type Check struct {
	Name  string
	Rule  string   // the property, in one sentence
	Cases []string // the reports from the field that it stands for

	phase phase
	needs []string                       // abilities
	not   func(g lock.Guarantees) string // why it does not apply, or ""
	bound time.Duration                  // 0: defaultBound
	run   func(ctx context.Context, t *T) error
}

const defaultBound = 40 * time.Second

// phase is when a check runs.
type phase uint8

const (
	together   phase = iota // with others
	alone                   // by itself, since it measures
	disturbing              // by itself and last, since it stops the server
)

func (p phase) String() string { return [...]string{"together", "alone", "disturbing"}[p] }

// What checks need that a store, or a test, may not have.
const (
	needSteal    = "Steal"        // Server.Steal
	needResidue  = "Residue"      // Server.Residue
	needPause    = "Pause"        // Server.Pause and Resume
	needRestart  = "Restart"      // Server.Kill and Restart
	needPool     = "SmallestPool" // Subject.SmallestPool
	needNetwork  = "Network"      // clients reach the store over TCP
	needURL      = "URL"          // Subject.Open reads the URL as lock.Open does
	needOwner    = "Owner"        // a HeldError says the holder's label
	needLogin    = "Login"        // Server.Login
	needChildren = "Children"     // other processes reach the store, and can be stopped and killed
)

// Abilities are the names that Subject.Without may have: Steal, Residue, Pause
// (with Resume), Restart (with Kill), SmallestPool, Network (the suite's proxy),
// URL (Open reads its URL as lock.Open does), Login (Server.Login), Owner
// (HeldError tells it) and Children.
func Abilities() []string {
	return []string{needSteal, needResidue, needPause, needRestart, needPool, needNetwork, needURL, needLogin, needOwner, needChildren}
}

// Checks returns all checks, in the order in which they run.
func Checks() []Check { return slices.Clone(checks) }

var checks = slices.Concat(
	exclusionChecks, releaseChecks, trustChecks, ttlChecks, waitChecks, nameChecks, tokenChecks, lifeChecks,
	urlChecks, networkChecks, ctxChecks, processChecks, loadChecks, serverChecks,
)

// Reasons for which a check does not apply.

func onlyClock(g lock.Guarantees) string {
	if g.Ends != lock.EndsClock {
		return fmt.Sprintf("no clock ends a lock of %s, the %v does", g.Backend, g.Ends)
	}
	return ""
}

func onlyNotProcess(g lock.Guarantees) string {
	if g.Ends == lock.EndsProcess {
		return "only the end of its process ends a lock of " + g.Backend
	}
	return ""
}

func onlyProcess(g lock.Guarantees) string {
	if g.Ends != lock.EndsProcess {
		return fmt.Sprintf("the %v ends a stopped holder's lock of %s", g.Ends, g.Backend)
	}
	return ""
}

func onlyFencing(g lock.Guarantees) string {
	if g.Fencing == lock.FencingNone {
		return g.Backend + " has no tokens"
	}
	return ""
}

func onlyNoFencing(g lock.Guarantees) string {
	if g.Fencing != lock.FencingNone {
		return g.Backend + " has tokens"
	}
	return ""
}

func onlyFIFO(g lock.Guarantees) string {
	if !g.FIFO {
		return g.Backend + " does not promise first come, first served"
	}
	return ""
}

func onlySurvivingRestart(g lock.Guarantees) string {
	if g.Survives&lock.FaultRestart == 0 {
		return g.Backend + " does not promise to keep locks over a restart of its server"
	}
	return ""
}

func onlyDurableTokens(g lock.Guarantees) string {
	if g.Fencing < lock.FencingDurable {
		return fmt.Sprintf("the tokens of %s are not promised to grow over a restart (fencing %v)", g.Backend, g.Fencing)
	}
	return ""
}
