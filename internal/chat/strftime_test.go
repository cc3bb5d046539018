package chat

import (
	"strings"
	"testing"
	"time"

	"github.com/karat-run/karat/jinja"
)

// TestClock has what transformers' strftime_now gives to templates.
func TestClock(t *testing.T) {
	for _, s := range readLines[struct{ Template, Render string }](t, "testdata/clock.jsonl") {
		tmpl, err := jinja.Parse(s.Template, jinja.Options{Globals: map[string]jinja.Value{"strftime_now": clock(frozen)}})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := tmpl.Execute(t.Context(), nil); err != nil || got != s.Render {
			t.Errorf("%s: %q, %v; want %q", s.Template, got, err, s.Render)
		}
	}
}

// TestStrftime has what Python 3.11's datetime.strftime gives on Debian.
func TestStrftime(t *testing.T) {
	const all = "%a|%A|%b|%B|%c|%C|%d|%D|%e|%f|%F|%g|%G|%h|%H|%I|%j|%k|%l|%m|%M|%n|%p|%P|%r|%R|%s|%S|%t|%T|%u|%U|%V|%w|%W|%x|%X|%y|%Y|%z|%Z|%%"
	const flags = "%-d|%_d|%05d|%^a|%^B|%#p|%#b|%-I|%_H|%10Y|%-j|%3e|%10A|%Ey|%Od|%Q|%|%_3m|%010B|%^p|%-y|%-C|%_y|%-S|%#Z|%+|%i"
	for _, c := range []struct {
		t          time.Time
		all, flags string
	}{
		{
			time.Date(2024, 2, 29, 0, 7, 9, 0, time.UTC),
			"Thu|Thursday|Feb|February|Thu Feb 29 00:07:09 2024|20|29|02/29/24|29|000000|2024-02-29|24|2024|Feb|00|12|060| 0|12|02|07|\n|AM|am|12:07:09 AM|00:07|1709165229|09|\t|00:07:09|4|08|09|4|09|02/29/24|00:07:09|24|2024|||%",
			"29|29|00029|THU|FEBRUARY|am|FEB|12| 0|0000002024|60| 29|  Thursday|24|29|%Q|%|  2|00February|AM|24|20|24|9||%+|%i",
		}, {
			time.Date(2026, 12, 31, 13, 0, 59, 123456000, time.UTC),
			"Thu|Thursday|Dec|December|Thu Dec 31 13:00:59 2026|20|31|12/31/26|31|123456|2026-12-31|26|2026|Dec|13|01|365|13| 1|12|00|\n|PM|pm|01:00:59 PM|13:00|1798722059|59|\t|13:00:59|4|52|53|4|52|12/31/26|13:00:59|26|2026|||%",
			"31|31|00031|THU|DECEMBER|pm|DEC|1|13|0000002026|365| 31|  Thursday|26|31|%Q|%| 12|00December|PM|26|20|26|59||%+|%i",
		}, {
			time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC),
			"Wed|Wednesday|Jan|January|Wed Jan  1 12:00:00 2025|20|01|01/01/25| 1|000000|2025-01-01|25|2025|Jan|12|12|001|12|12|01|00|\n|PM|pm|12:00:00 PM|12:00|1735732800|00|\t|12:00:00|3|00|01|3|00|01/01/25|12:00:00|25|2025|||%",
			"1| 1|00001|WED|JANUARY|pm|JAN|12|12|0000002025|1|  1| Wednesday|25|01|%Q|%|  1|000January|PM|25|20|25|0||%+|%i",
		}, {
			time.Date(2021, 1, 3, 23, 59, 59, 0, time.UTC),
			"Sun|Sunday|Jan|January|Sun Jan  3 23:59:59 2021|20|03|01/03/21| 3|000000|2021-01-03|20|2020|Jan|23|11|003|23|11|01|59|\n|PM|pm|11:59:59 PM|23:59|1609718399|59|\t|23:59:59|7|01|53|0|00|01/03/21|23:59:59|21|2021|||%",
			"3| 3|00003|SUN|JANUARY|pm|JAN|11|23|0000002021|3|  3|    Sunday|21|03|%Q|%|  1|000January|PM|21|20|21|59||%+|%i",
		},
	} {
		for format, want := range map[string]string{all: c.all, flags: c.flags} {
			got, err := strftime(c.t, format)
			if err != nil {
				t.Fatal(err)
			}
			directives, gots, wants := strings.Split(format, "|"), strings.Split(got, "|"), strings.Split(want, "|")
			if len(gots) != len(wants) {
				t.Fatalf("got %q, want %q", got, want)
			}
			for i := range wants {
				if gots[i] != wants[i] {
					t.Errorf("%v, %s: %q, want %q", c.t, directives[i], gots[i], wants[i])
				}
			}
		}
	}
	if s, err := strftime(time.Date(2024, 2, 29, 1, 2, 3, 0, time.UTC), strings.Repeat("%9999d", 100)); err == nil {
		t.Errorf("%d bytes", len(s))
	}
}
