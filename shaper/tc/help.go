package tc

// What tc prints for "help", to standard error.

const usageTC = `Usage:	tc [ OPTIONS ] OBJECT { COMMAND | help }
	tc [-force] -batch filename
where  OBJECT := { qdisc | class | filter }
       OPTIONS := { -V[ersion] | -s[tatistics] | -d[etails] | -r[aw] |
		    -o[neline] | -j[son] | -p[retty] | -c[olor]
		    -b[atch] [filename] | -n[etns] name | -N[umeric] |
		     -nm | -nam[es] | -br[ief] | -echo | -iec }`

const usageQdisc = `Usage: tc qdisc [ add | del | replace | change | show ] dev STRING
       [ handle QHANDLE ] [ root | ingress | clsact | parent CLASSID ]
       [ [ QDISC_KIND ] [ help | OPTIONS ] ]

       tc qdisc { show | list } [ dev STRING ] [ QDISC_ID ] [ invisible ]
Where:
QDISC_KIND := { [p|b]fifo | tbf | prio | etc. }
OPTIONS := ... try tc qdisc add <desired QDISC_KIND> help
QDISC_ID := { root | ingress | handle QHANDLE | parent CLASSID }`

const usageClass = `Usage: tc class [ add | del | change | replace | show ] dev STRING
       [ classid CLASSID ] [ root | parent CLASSID ]
       [ [ QDISC_KIND ] [ help | OPTIONS ] ]

       tc class show [ dev STRING ] [ root | parent CLASSID ]
Where:
QDISC_KIND := { drr | ets | etc. }
OPTIONS := ... try tc class add <desired QDISC_KIND> help`

const usageFilter = `Usage: tc filter [ add | del | change | replace | show ] [ dev STRING ]
       tc filter get dev STRING parent CLASSID protocol PROTO handle FILTERID pref PRIO FILTER_TYPE
       [ pref PRIO ] protocol PROTO [ chain CHAIN_INDEX ]
       [ root | ingress | egress | parent CLASSID ]
       [ handle FILTERID ] [ [ FILTER_TYPE ] [ help | OPTIONS ] ]

       tc filter show [ dev STRING ] [ root | ingress | egress | parent CLASSID ]
Where:
FILTERID := ... format depends on classifier, see there
OPTIONS := ... try tc filter add <desired FILTER_KIND> help`
