package erlang

import (
	"strings"
	"testing"
)

// Erlang/OTP 29 returned the hashes of this table.
func TestHashMatchesErlang(t *testing.T) {
	for _, test := range []struct {
		hash     uint32
		binaries []string
	}{
		{38220213, []string{""}},
		{8578898, []string{"", ""}},
		{53691870, []string{"a"}},
		{3094894, []string{"a", "b"}},
		{109821296, []string{"b", "a"}},
		{84176382, []string{"ab"}},
		{8559055, []string{"a", ""}},
		{57000483, []string{"", "a"}},
		{91191000, []string{"ö€"}},
		{46186737, []string{"\n"}},
		{28692794, []string{strings.Repeat("a", 10)}},
		{93483404, []string{strings.Repeat("a", 11)}},
		{83396814, []string{strings.Repeat("a", 12)}},
		{112012515, []string{strings.Repeat("a", 13)}},
		{106254767, []string{strings.Repeat("a", 23)}},
		{13506210, []string{strings.Repeat("a", 24)}},
		{40421971, []string{strings.Repeat("a", 25)}},
		{69398923, []string{strings.Repeat("x", 255)}},
		{45780440, []string{"Z4b0pZdkhx1py5g7pan.rl", "keiAA*iiaannkksum5éBnlmy", "bx.kjqevt98a9évetwt"}},
		{845784, []string{"l11ldqbwzb6.xy8a*clA", "hp0w3w4q0g8x", "c#fnv3Axjvr5ftéutl", "Bjt1k"}},
		{86751564, []string{"95zcp"}},
		{65523942, []string{"0Z.jdBc2vni7iB.g", "#xjd.sj0Ak", "02u1rs1zjhy5lB2vlf2r363xew8 ctx6 "}},
		{20061831, []string{"qsvZl8a16qu r0s3ZéwwrZw.wl*xv4j", "kmx1sf .kA84 .tA6Brbmk8*AZloélBc1", "kdihul1m6c.0wy"}},
		{18739247, []string{"npxawzr.h6xc6Atgs53v8swi..7Z5x0jk9y71"}},
		{106658527, []string{"9fw aygu", "A5juB7y##o2s1yyk99qt2q.but2sj1bh A*p"}},
		{85977024, []string{"iz", "", "56rp1cp2rjss2914Z9hbits5vAs4b0"}},
		{28691715, []string{"é8icaq60égé5ma##97BZ1y1", "éms0eta#8sZ1tjk162v5j#85d", "orfe"}},
		{83866049, []string{"#ez2dhhoAZhis*jlAl.ke"}},
		{42382693, []string{"6g", "erd77hzAia#fué922wZxdisj"}},
		{97071296, []string{"6Aoqe6pqs4ipx0ylibZvf7 cfh390py01ug", "b5ydj#éohf 2niAywpsvAwyyiwZsB#x4c", "7nlzegcclmmc21 wa#1tA#u00gmjZkexy1j6q"}},
		{28654970, []string{"ksépc1cwxudbé01jh"}},
		{133332215, []string{"0épkcmb7o fAzxétl0", "se0kpléncZ9#ra0d*é.kcc6", "7wgep2f1dépZd2zddq.*tBdcml3Bzm5of"}},
		{23645026, []string{"f5k9en", "b*5w2#7y4Biat*o6hit1fqzuii5f1pf#7 prd2p", "msx"}},
		{7931919, []string{".uy6"}},
		{12836787, []string{"Zi7b*jZbd#rgy6iuet"}},
		{40221867, []string{"q2éusce5", "bbhdiw#qAbo4#ixmvwak8Akgr49kBj*##hv"}},
		{133611577, []string{"o09#k*d k5129agi.édnac7p1wz0", "mrmt64wpxwp d", "2zwjjp2ycgkzgsmu1é15Afmyag398AlybuébAt3"}},
		{4230023, []string{"15z*86 d5j.x8bé4nssebfwA8.tarpec", " tw9A", "n14fhpv5#za yylZ4néAuyug6xpgnstrAek", "B.lo"}},
		{52175048, []string{"7BB5..o#149pt.rf9vl.bjhs7697l#mu9gZv"}},
		{43288041, []string{"2i4"}},
		{123640474, []string{"m0ZyoA1gamékhfvjxAg7"}},
		{92417194, []string{"l68Bgxgemnuxl0éfpz50", "ah9xiéa2yve2sbh1wmvyjs2Z", "7hs.v", "4#do"}},
		{18786616, []string{"r ejrg61#l5ypf*", "ifajxbbq60y4fdnm*a14fr", "é13bdkz3#8 ZAB8cnb..#yakvjtm#exnz.mri1", "sa Bhk0eeéyc.jmZb2u90i0"}},
		{133485890, []string{"xAba", "#friZxvnjs4"}},
		{51126383, []string{"hgZzxtx168*p7iqb5a"}},
		{68912363, []string{"p1 daan.", "3Aptd3pcywb6t*", "gZhx74r89yytk8éeZ*dn4Ayg3t6x", "i0we2a77n70cdfhvjxvqr1jhqq"}},
		{51764378, []string{"qykBpq8*l9i7dw6ha0cA2éZcb8.h.4A*A7o5heé8"}},
		{10691620, []string{"e0"}},
		{33852243, []string{"5eZérhztq0ttau4 20yjZnquAn0fjwfB#", "A4Zzlmi2ké3*7wbj#r7235n6p k.", "qusAgmq#w4q2BZfhhvggBs8ld5ylBvqg.vg"}},
		{126506835, []string{"sv..", "etel", "g3"}},
		{46879406, []string{"0.eo.b", "5sZgé3uxe0ygkphA5gfZ 5y#hrt60#cn3iy ", "lmu4eitdZ0t*67B3qskBq01z9gi9m0g*oipkZf*q", "0ék1gt8qBwd56hnbv781B249s9vdsi4.s.xisZm"}},
		{38220213, []string{""}},
		{25062344, []string{"t. s.8é0v4", "uAak72Za510xco5a1hmkk3p zZgy.ZoZ", "an p8e3x#8togx696", "édq4aj#d0ammgl0*11s4ebAA0AA9"}},
		{14987179, []string{"Z", "3mevmg5xflozac#dtmyzkhymniz*"}},
		{61521151, []string{"br04mérfo#.  6*mmu8qécm5kx", "g9#xjBsla5j#ga60uf2jxad9x1q7*v95.kz#6*bo"}},
		{63230206, []string{"g3e51of Z9ugfu.luw", "tB", "4fZéBfc", "31n*tj#rA*7eé4psf8teys.gkwB#fvn"}},
		{69150310, []string{"0ug2uc", "d9ostq034w33f37*. mAz#hie*uc", "x.98gla*jtc7g8defsB"}},
		{81556614, []string{"# oc#0skv437z0A0cl", "1uAfh*rxvBhyz*qij50wrll", "aézuqmAj#A40hsycmm zp28 3b"}},
	} {
		if got := Hash(test.binaries[0], test.binaries[1:]...); got != test.hash {
			t.Errorf("hash of %q: got %d, want %d", test.binaries, got, test.hash)
		}
	}
}
