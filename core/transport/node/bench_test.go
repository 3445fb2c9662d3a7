package node

import (
	"fmt"
	"testing"
	"time"

	"sar/core/transport"
	"sar/core/transport/shm"
	"sar/core/transport/tcp"
)

const exchangeSize = 4 << 20 // bytes each way

// exchange sends 4 MiB in frames of at most chunk KiB and takes as much, both
// at once.
func exchange(l transport.Link, times, chunkKiB int, w *work) error {
	chunk := min(chunkKiB<<10, l.MaxPayload()) / rowBytes * rowBytes
	sent := make(chan error, 1)
	go func() {
		sent <- func() error {
			for range times {
				for done := 0; done < exchangeSize; {
					p, err := l.Reserve(min(chunk, exchangeSize-done), time.Now().Add(patience))
					if err != nil {
						return err
					}
					w.put(p, done)
					if err := l.Commit(transport.Tag{}, time.Now().Add(patience)); err != nil {
						return err
					}
					done += len(p)
				}
			}
			return nil
		}()
	}()
	for range times {
		for done := 0; done < exchangeSize; {
			f, err := l.Next(time.Now().Add(patience))
			if err != nil {
				return err
			}
			w.take(f.Payload, done)
			done += len(f.Payload)
			l.Release()
		}
	}
	return <-sent
}

// BenchmarkExchange swaps 4 MiB with another process. "copy" moves one array
// into another, which is what isend and irecv of other libraries do; "rows"
// gathers rows into the frame and adds them up where they lie, as the exchange
// of boundary rows does.
func BenchmarkExchange(b *testing.B) {
	for _, kind := range []string{shm.Transport.Name, tcp.Transport.Name} {
		for _, mode := range []string{"copy", "rows"} {
			for _, chunk := range []int{64, 256, 512, 1024} {
				b.Run(fmt.Sprintf("%s/%s/chunk=%dKiB", kind, mode, chunk), func(b *testing.B) {
					p := startHelper(b, kind)
					w := newWork(mode == "rows")
					const times = 32 // exchanges in one run, to see past the start
					tag := transport.Tag{Kind: askExchange, Round: times, Chunk: uint32(chunk)}
					if w.rows {
						tag.Flags = 1
					}
					run := func() {
						deadline := time.Now().Add(patience)
						if _, err := p.link.Reserve(0, deadline); err != nil {
							b.Fatal(err)
						}
						if err := p.link.Commit(tag, deadline); err != nil {
							b.Fatal(err)
						}
						if err := exchange(p.link, times, chunk, w); err != nil {
							b.Fatal(err)
						}
					}
					run()
					b.SetBytes(exchangeSize * times)
					for b.Loop() {
						run()
					}
					b.StopTimer()
					p.stop(b)
				})
			}
		}
	}
}

// stop lets the helper end by itself.
func (p *process) stop(b *testing.B) {
	b.Helper()
	if err := p.link.Close(); err != nil {
		b.Fatal(err)
	}
	if err := p.cmd.Wait(); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkRoundTrip(b *testing.B) {
	for _, kind := range []string{shm.Transport.Name, tcp.Transport.Name} {
		for _, size := range []string{"", string(make([]byte, 1024))} {
			b.Run(fmt.Sprintf("%s/bytes=%d", kind, len(size)), func(b *testing.B) {
				p := startHelper(b, kind)
				for b.Loop() {
					if err := p.ask(askEcho, size); err != nil {
						b.Fatal(err)
					}
					if _, err := p.link.Next(time.Now().Add(patience)); err != nil {
						b.Fatal(err)
					}
					p.link.Release()
				}
				b.StopTimer()
				p.stop(b)
			})
		}
	}
}
