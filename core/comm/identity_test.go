package comm

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"sar/core/internal/freeport"
	"sar/core/transport/node"
	"sar/core/trust"
)

// names has host names resolve as in an /etc/hosts.
func names(t *testing.T, hosts map[string][]string) {
	old := lookupHost
	t.Cleanup(func() { lookupHost = old })
	lookupHost = func(name string) ([]string, error) {
		if addrs := hosts[name]; addrs != nil {
			return addrs, nil
		}
		return nil, errors.New("no such host")
	}
}

// What is listened on is what peers are told, never every interface.
func TestLocate(t *testing.T) {
	own := node.OwnAddr()
	names(t, map[string][]string{"localhost": {"::1", "127.0.0.1"}, "thishost": {"127.0.1.1"}})
	for _, c := range []struct {
		name string
		cfg  Config
		want place
	}{
		{"the loopback", Config{MasterAddr: "127.0.0.1"}, place{[]string{"127.0.0.1"}, []string{"127.0.0.1"}, "127.0.0.1"}},
		{"a name for the loopback", Config{MasterAddr: "thishost"},
			place{[]string{"127.0.1.1"}, []string{"127.0.1.1", own}, own}},
		{"and an interface", Config{MasterAddr: "thishost", Interface: "lo"},
			place{[]string{"127.0.1.1"}, []string{"127.0.1.1", "127.0.0.1"}, "127.0.0.1"}},
		{"an interface", Config{MasterAddr: own, Interface: "lo"}, place{[]string{own}, []string{own}, "127.0.0.1"}},
		{"a name that resolves later", Config{MasterAddr: "nowhere"}, place{nil, []string{"nowhere"}, own}},
		{"this host", Config{MasterAddr: own}, place{[]string{own}, []string{own}, own}},
	} {
		c.cfg.MasterPort = 1
		if got, err := locate(c.cfg); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
	if _, err := locate(Config{MasterAddr: "127.0.0.1", Interface: "nosuch0"}); err == nil {
		t.Error("an interface that is not there")
	}
}

// A name that leads this host to its loopback is served there and where others
// find it, on one port, and workers meet by either.
func TestListenByAName(t *testing.T) {
	own := node.OwnAddr()
	names(t, map[string][]string{"thishost": {"127.0.0.1"}})
	port := freeport.Find()
	ls, err := listenMaster(Config{MasterAddr: "thishost", MasterPort: port},
		place{master: []string{"127.0.0.1", own}, data: own}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, l := range ls {
		got = append(got, l.Addr().String())
		_ = l.Close()
	}
	want := []string{fmt.Sprintf("127.0.0.1:%d", port), net.JoinHostPort(own, fmt.Sprint(port))}
	if own == "127.0.0.1" {
		t.Skip("this host has the loopback alone")
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("listens on %v, want %v", got, want)
	}
	cfgs := configs(port, 3, nil)
	cfgs[0].MasterAddr, cfgs[2].MasterAddr = "thishost", own
	noErrors(t, joinAll(t, cfgs, nil))
}

func TestTokenRule(t *testing.T) {
	t.Setenv(trust.EnvSecret, filepath.Join(t.TempDir(), "secret"))
	home := place{found: []string{"127.0.0.1"}, master: []string{"127.0.0.1"}, data: "127.0.0.1"}
	far := home
	far.data = "192.0.2.1"
	remote := place{found: []string{"192.0.2.7"}, master: []string{"192.0.2.7"}, data: "192.0.2.1"}
	for _, c := range []struct {
		name string
		cfg  Config
		at   place
		ok   bool
	}{
		{"on the loopback", Config{MasterAddr: "127.0.0.1"}, home, true},
		{"data off the loopback", Config{MasterAddr: "127.0.0.1"}, far, false},
		{"master off the loopback", Config{MasterAddr: "192.0.2.7"}, remote, false},
		{"a proxy", Config{MasterAddr: "127.0.0.1", Advertise: "192.0.2.9:7"}, home, false},
		{"a proxy on the loopback", Config{MasterAddr: "127.0.0.1", Advertise: "127.0.0.1:7"}, home, true},
		{"insecure", Config{MasterAddr: "192.0.2.7", Insecure: true}, remote, true},
		{"a token", Config{MasterAddr: "192.0.2.7", JobToken: testToken}, remote, true},
		{"a short one", Config{MasterAddr: "192.0.2.7", JobToken: "short"}, remote, false},
	} {
		c.cfg.World = 2
		if _, err := identify(c.cfg, c.at); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	_, err := identify(Config{MasterAddr: "192.0.2.7"}, remote)
	for _, words := range []string{"192.0.2.7", "sar launch", "SAR_JOB_TOKEN", "token_hex", "SAR_INSECURE=1"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q is not in: %v", words, err)
		}
	}
}

// What accepts connections and says nothing is left at the deadline.
func TestSilentMasterIsLeft(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	begin := time.Now()
	_, err = Join(configs(l.Addr().(*net.TCPAddr).Port, 2, func(c *Config) { c.Start = time.Second })[1])
	every(t, []error{err}, "cannot reach rank 0")
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}
