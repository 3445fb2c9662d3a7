package comm

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sar/core/internal/limits"
	"sar/core/transport/node"
	"sar/core/trust"
)

// place is where this rank listens. Peers are told of these addresses, and it
// listens on no others.
type place struct {
	found  []string // addresses of the master's name, none if it does not resolve
	master []string // where rank 0 listens for calls
	data   string   // where this rank listens for links and control connections, rank 0 at the master's port
}

// locate finds the addresses of this rank.
func locate(cfg Config) (p place, err error) {
	p.found, p.master = resolve(cfg.MasterAddr), []string{cfg.MasterAddr}
	// A host name that this host resolves to its loopback, as /etc/hosts often has
	// it, leads the ranks of other hosts here by another address.
	alias := cfg.MasterAddr != "localhost" && net.ParseIP(cfg.MasterAddr) == nil && allLoopback(p.found)
	if cfg.Interface == "" && !alias {
		for _, addr := range p.found {
			if p.data, err = node.RouteTo(net.JoinHostPort(addr, fmt.Sprint(cfg.MasterPort))); err == nil {
				return p, nil
			}
		}
	}
	if p.data, err = node.OwnAddr(), nil; cfg.Interface != "" {
		p.data, err = node.InterfaceAddr(cfg.Interface)
	}
	if alias {
		p.master = append(append([]string(nil), p.found...), p.data)
	}
	return p, err
}

// lookupHost is replaced by tests.
var lookupHost = net.LookupHost

func resolve(host string) []string {
	if net.ParseIP(host) != nil {
		return []string{host}
	}
	found, err := lookupHost(host)
	if err != nil {
		return nil // it may resolve later
	}
	return found
}

// allLoopback tells whether addrs are loopback addresses alone.
func allLoopback(addrs []string) bool {
	for _, a := range addrs {
		if ip := net.ParseIP(a); ip == nil || !ip.IsLoopback() {
			return false
		}
	}
	return len(addrs) > 0
}

// listenMaster listens where the others will look for rank 0, at the address of
// the data too. Where the master's is translated on the way, it is that one alone.
func listenMaster(cfg Config, at place, id *trust.Identity) ([]net.Listener, error) {
	var all []net.Listener
	var first error
	for i, host := range at.master {
		l, err := listenAt(host, cfg.MasterPort)
		if errors.Is(err, unix.EADDRNOTAVAIL) && len(at.master) == 1 {
			l, err = listenAt(at.data, cfg.MasterPort)
		}
		if errors.Is(err, unix.EADDRNOTAVAIL) && i+1 < len(at.master) { // such as ::1 where there is no IPv6
			continue
		}
		if err == nil {
			all = append(all, l)
		} else if first == nil {
			first = err
		}
	}
	if first == nil && len(all) > 0 && !covers(all, at.data) {
		l, err := listenAt(at.data, cfg.MasterPort)
		if first = err; err == nil {
			all = append(all, l)
		}
	}
	if first == nil && len(all) > 0 {
		return all, nil
	}
	closeAll(all)
	if errors.Is(first, unix.EADDRINUSE) {
		return nil, rendezvousf("port %d on %s is in use%s; stop it or choose another master port", cfg.MasterPort,
			cfg.MasterAddr, occupant(cfg, id))
	}
	return nil, rendezvousf("rank 0 cannot listen on %s port %d: %v", cfg.MasterAddr, cfg.MasterPort,
		limits.Explain(first))
}

// covers tells whether a connection to addr comes to one of the listeners.
func covers(all []net.Listener, addr string) bool {
	ip := net.ParseIP(addr)
	return slices.ContainsFunc(all, func(l net.Listener) bool {
		at := l.Addr().(*net.TCPAddr).IP
		return at.IsUnspecified() || at.Equal(ip)
	})
}

func closeAll(all []net.Listener) {
	for _, l := range all {
		_ = l.Close()
	}
}

func listenAt(host string, port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort(host, fmt.Sprint(port)))
}

// askTime bounds the question to who listens where this rank wanted to.
const askTime = time.Second

// occupant says who listens where this rank wanted to.
func occupant(cfg Config, id *trust.Identity) string {
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(cfg.MasterAddr, fmt.Sprint(cfg.MasterPort)), askTime)
	if err == nil {
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(askTime))
		_, err = id.Dial(conn, trust.Target{Purpose: trust.Calls})
	}
	var no *trust.Refused
	switch {
	case err == nil:
		return ": a rank 0 of this very job listens there"
	case errors.As(err, &no) && no.OtherJob:
		return fmt.Sprintf(": it belongs to another job of SAR (job %s, this one is %s)", no.Theirs, no.Ours)
	}
	return ": another run or service listens there"
}

// identify makes this rank's identity of the job token. Where only this host's
// users can reach the job, a token that is not given is derived from a secret of
// this user.
func identify(cfg Config, at place) (*trust.Identity, error) {
	job, err := jobOf(cfg, at)
	if err != nil {
		return nil, err
	}
	id, err := trust.NewIdentity(job, cfg.Rank, cfg.World, cfg.TLS)
	if err != nil {
		return nil, rendezvousf("rank %d: %v", cfg.Rank, err)
	}
	return id, nil
}

// DerivedToken makes a job token of what is no secret and a secret of this user.
func DerivedToken(public string) (string, error) { return trust.DerivedToken(public) }

func jobOf(cfg Config, at place) (*trust.Job, error) {
	token := cfg.JobToken
	if token == "" && cfg.Insecure {
		return trust.Insecure(), nil
	}
	if token == "" {
		if open := exposed(cfg, at); open != "" {
			return nil, rendezvousf("no job token, and %s can be reached from other hosts, where anybody could join this job: "+
				"start the workers with sar launch or torchrun, or set SAR_JOB_TOKEN to the same secret for every worker (%s "+
				"prints one), "+
				"or allow it with SAR_INSECURE=1", open, trust.MakeToken)
		}
		var err error
		if token, err = trust.DerivedToken("loopback"); err != nil {
			return nil, rendezvousf("no job token, and none can be derived for the workers of this host: %v; "+
				"start them with sar launch, or set SAR_JOB_TOKEN to the same secret for every worker", err)
		}
	}
	job, err := trust.NewJob(token)
	if err != nil {
		return nil, &RendezvousError{err.Error()}
	}
	return job, nil
}

// exposed names an address of the job that is not the loopback's, "" if there is
// none. A master whose name does not resolve is not reached anyway.
func exposed(cfg Config, at place) string {
	if len(at.found) == 0 {
		return ""
	}
	if !allLoopback(at.found) {
		return cfg.MasterAddr
	}
	for _, addr := range append([]string{at.data}, at.master...) {
		if !allLoopback(resolve(addr)) {
			return addr
		}
	}
	if cfg.Advertise != "" {
		host, _, err := net.SplitHostPort(cfg.Advertise)
		if err != nil {
			host = strings.Trim(cfg.Advertise, "[]")
		}
		if !allLoopback(resolve(host)) {
			return host
		}
	}
	return ""
}
