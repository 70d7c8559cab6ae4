package consume

import "testing"

func TestCountsNacksDependsOnVersion(t *testing.T) {
	for version, want := range map[string]bool{
		"3.10.8": true, "3.13.7+1": true, "4.0.5": true, "4.2.0-rc.1": true,
		"4.3.0": false, "4.3.6": false, "4.10.0": false, "5.0.0": false,
		"": false, "devel": false,
	} {
		if got := CountsNacks(version); got != want {
			t.Errorf("%q: got %t, want %t", version, got, want)
		}
	}
}

func TestCrashLimitDefaults(t *testing.T) {
	for _, tc := range []struct {
		limit       int
		countsNacks bool
		want        int
	}{
		{0, false, DefaultCrashLimit},
		{0, true, 0}, // the count would include requeued messages
		{3, true, 3},
		{3, false, 3},
		{-1, false, 0},
	} {
		s := &session{consumer: &Consumer{Config: Config{CrashLimit: tc.limit}}, countsNacks: tc.countsNacks}
		if got := s.crashLimit(); got != tc.want {
			t.Errorf("CrashLimit %d, counts nacks %t: got %d, want %d", tc.limit, tc.countsNacks, got, tc.want)
		}
	}
}
