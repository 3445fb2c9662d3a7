package library

import (
	"os"
	"path/filepath"
	"testing"
)

func TestHasDevice(t *testing.T) {
	folder := t.TempDir()
	if hasDevice(folder) || hasDevice(filepath.Join(folder, "none")) {
		t.Error("a device in an empty folder, or in none")
	}
	if err := os.Mkdir(filepath.Join(folder, "mlx5_0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if !hasDevice(folder) {
		t.Error("mlx5_0 is no device")
	}
}

func TestListed(t *testing.T) {
	for _, c := range []struct {
		printed, names string
		remote         bool
	}{
		{"", "", false},
		{"#\n# UCP context\n#\n#     component 0  :  self\n" +
			"#      resource 0  :  md 0  dev 0  flags -- self/memory\n#      resource 1  :  md 1  dev 1  flags -- tcp/eth10\n" +
			"#      resource 2  :  md 1  dev 2  flags -- tcp/eth1\n#      resource 3  :  md 2  dev 3  flags -- posix/memory\n",
			"self/memory, tcp/eth10, tcp/eth1, posix/memory", false},
		{"#      resource 1  :  md 1  dev 1  flags -- tcp/ib0\n" +
			"#      resource 2  :  md 4  dev 5  flags -- rc_mlx5/mlx5_0:1\n", "tcp/ib0, rc_mlx5/mlx5_0:1", true},
		{"#      resource 2  :  md 4  dev 5  flags -- srd/rdmap0s6:1\n", "srd/rdmap0s6:1", true},
		{"# resource 2 : md 4 dev 5 flags -- ud_verbs/mlx5_0:1\n# resource 3 : md 4 dev 5 flags -- ud_verbs/mlx5_0:1\n",
			"ud_verbs/mlx5_0:1", true},
		{"#                 lane[0]:  1:tcp/eth0.0 md[1]      -> md[1]/tcp/sysdev[255] am am_bw#0\n" +
			"#                 lane[1]:  5:cma/memory.0 md[4]   -> md[4]/cma/sysdev[255] rma_bw#0\n",
			"tcp/eth0, cma/memory", false},
		{"#                 lane[0]:  8:dc_mlx5/mlx5_0:1.0 md[4] -> md[4]/ib am\n", "dc_mlx5/mlx5_0:1", true},
	} {
		if names, remote := listed(c.printed); names != c.names || remote != c.remote {
			t.Errorf("%q is listed as %q, %v; not %q, %v", c.printed, names, remote, c.names, c.remote)
		}
	}
}
