package node

import (
	"strings"
	"testing"
)

func TestListenConfig(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Rank: 2, World: 2}, "rank 2"},
		{Config{World: 1, Transport: "carrier pigeon"}, "carrier pigeon"},
		{Config{World: 1, BindAddr: "203.0.113.1"}, "203.0.113.1"},
		{Config{World: 1, Advertise: "host:port"}, "host:port"},
	} {
		c.cfg.Identity = identity(0, 1)
		if n, err := Listen(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
			if n != nil {
				_ = n.Close()
			}
		}
	}
	for _, c := range []struct {
		cfg  Config
		host string
	}{
		{Config{World: 1, BindAddr: "127.0.0.1"}, "127.0.0.1"},
		{Config{World: 1, BindAddr: "127.0.0.1", Advertise: "proxy:77"}, "proxy:77"},
		{Config{World: 1, BindAddr: "127.0.0.1", Advertise: "proxy"}, "proxy"},
	} {
		c.cfg.Identity = identity(0, 1)
		n, err := Listen(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if got := n.Endpoint().TCP; !strings.HasPrefix(got, c.host) || strings.HasSuffix(got, ":0") {
			t.Errorf("%+v is at %s", c.cfg, got)
		}
		_ = n.Close()
	}
	if _, err := InterfaceAddr("nosuch0"); err == nil || !strings.Contains(err.Error(), "lo (127.0.0.1)") {
		t.Errorf("no such interface: %v", err)
	}
	if a, err := InterfaceAddr("lo"); err != nil || a != "127.0.0.1" {
		t.Errorf("the loopback is %s, %v", a, err)
	}
	if a, err := RouteTo("127.0.0.1:9"); err != nil || a != "127.0.0.1" {
		t.Errorf("route to the loopback leaves from %s, %v", a, err)
	}
}
