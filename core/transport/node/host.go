package node

import (
	"fmt"
	"net"
	"os"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// hostID is equal for two processes exactly if they reach each other's abstract
// Unix sockets, and so can pass memory: one boot of one kernel, one network
// namespace. PID, mount and IPC namespaces do not matter, as a segment has no
// name. Where the facts cannot be read the id is of this process alone.
func hostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	var st unix.Stat_t
	if err == nil {
		err = unix.Stat("/proc/self/ns/net", &st)
	}
	if err != nil {
		return fmt.Sprintf("unknown-%s-%d", hostName(), os.Getpid())
	}
	return fmt.Sprintf("%s-%d-%d", strings.TrimSpace(string(boot)), st.Dev, st.Ino)
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}

// InterfaceAddr returns the address of a network interface, IPv4 if it has one.
// The error for an unknown name lists the interfaces there are.
func InterfaceAddr(name string) (string, error) {
	all, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("listing network interfaces: %w", err)
	}
	var known []string
	for _, i := range all {
		addr := usable(i)
		if i.Name == name {
			if addr == "" {
				return "", fmt.Errorf("network interface %q has no address or is down", name)
			}
			return addr, nil
		}
		if addr != "" {
			known = append(known, fmt.Sprintf("%s (%s)", i.Name, addr))
		}
	}
	sort.Strings(known)
	return "", fmt.Errorf("there is no network interface %q; there are %s", name, strings.Join(known, ", "))
}

// usable is the interface's first IPv4 address, else its first IPv6 address
// that needs no zone, else "".
func usable(i net.Interface) string {
	if i.Flags&net.FlagUp == 0 {
		return ""
	}
	addrs, err := i.Addrs()
	if err != nil {
		return ""
	}
	six := ""
	for _, a := range addrs {
		ipnet, ok := a.(*net.IPNet)
		if !ok {
			continue
		}
		if ipnet.IP.To4() != nil {
			return ipnet.IP.String()
		}
		if six == "" && !ipnet.IP.IsLinkLocalUnicast() {
			six = ipnet.IP.String()
		}
	}
	return six
}

// RouteTo returns the address of this host that packets to addr (host:port)
// leave from. Nothing is sent.
func RouteTo(addr string) (string, error) {
	conn, err := net.Dial("udp", addr)
	if err != nil {
		return "", fmt.Errorf("no route to %s: %w", addr, err)
	}
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// OwnAddr is the address by which other hosts most likely reach this one: that
// of the default route, else of the first interface, else the loopback's.
func OwnAddr() string {
	// Addresses for documentation, which nobody has: they take the default route.
	for _, far := range []string{"203.0.113.1:9", "[2001:db8::1]:9"} {
		if addr, err := RouteTo(far); err == nil {
			return addr
		}
	}
	all, err := net.Interfaces()
	if err == nil {
		for _, i := range all {
			if i.Flags&net.FlagLoopback == 0 {
				if a := usable(i); a != "" {
					return a
				}
			}
		}
	}
	return "127.0.0.1"
}
