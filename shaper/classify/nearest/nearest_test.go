package nearest_test

import (
	"testing"

	"sluice/shaper/classify/nearest"
)

func TestTheWordThatWasMeant(t *testing.T) {
	known := []string{"weight", "quota", "doorbell", "cpu", "rate", "rtt", "tx_flush_interval"}
	for got, want := range map[string]string{
		"wieght":           "weight",
		"Weight":           "weight",
		"wight":            "weight",
		"qouta":            "quota",
		"CPU":              "cpu",
		"cpus":             "cpu",
		"rat":              "rate",
		"txflush_interval": "tx_flush_interval",
		"tx_flush":         "",
		"banana":           "",
		"":                 "",
		"x":                "",
	} {
		if w := nearest.Word(got, known); w != want {
			t.Errorf("Word(%q) = %q, want %q", got, w, want)
		}
	}
}
