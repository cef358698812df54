package command_test

import (
	"strings"
	"testing"

	"github.com/rein-sh/rein/command"
)

// Command lines that change nothing.
const reading = `
ls
ls -la /tmp
/usr/bin/ls
cat a b | head -n 5 | wc -l
cat < in
cat a > /dev/null 2>&1
echo a >&2
echo "a b"
printf '%s\n' a
true && false || :
cd sub && pwd
test -f a && [ -d b ]
[[ -f a ]] && echo yes
if grep -q a b; then echo found; fi
for x in a b; do echo x; done
(ls; cat a) | sort
{ ls; } 2>/dev/null
f() { ls; }
! grep a b
x=1
LC_ALL=C sort a
TZ=UTC date +%s
date
date -u +%F -d yesterday
sort -n -k 2,2 -t : a
sort -r a b
uniq -c
uniq a
cut -d: -f1 a
tr a b
find . -name x -type f
find . -mtime -1 -print
find . -exec ls \;
grep -rn --include=x a .
rg -n a
diff a b
cmp a b
stat a
du -sh a
df -h
file a
sha256sum a
od -c a
xxd a
jq . a
sed -n 1,5p a
sed -n '/a/,/b/p' a
sed 's/a/b/g' a
sed -E -e 's|a|b|' -e '3d' a
sed '$!d' a
sed -n '$=' a
awk '{print $1}' a
awk -F: 'NR==2 {print $2; exit}' a
hostname
uname -a
id
which ls
command -v ls
type ls
env
printenv PATH
timeout 5 cat a
nice ls
env -i ls
sh -c 'ls; cat a'
bash -c "grep -c a b"
eval ls
time ls
cat <<'E'
text $x
E
cat <<E
text
E
cat <<< text
git --version
git rev-parse HEAD
git branch --show-current
git config --get user.name
go version
python3 --version
read -r line
set -e
export LANG=C
unset x
trap - EXIT
wait
sleep 1
a=1; b=2
`

// Command lines that change something, or of which that is not known.
const changing = `
rm a
mv a b
touch a
mkdir a
chmod +x a
tee a
echo a > b
echo a >> b
echo a >| b
echo a &> b
echo a >& b
cat <> a
> a
{ ls; } > a
(ls) >> a
exec > a
ls > $x
cat < $x
cat < /dev/tcp/localhost/80
ls 3> a
sort -o a b
sort a -o a
sort -no a b
sort --output=a b
sort --outp a b
sort --compress-program=x a
sort -t -- -o a b
uniq a b
xxd a b
xxd -r a
tree -o a
file -C -m a
rg --pre x a
date -s now
date 010100002030
hostname a
sed -i s/a/b/ c
sed -ni p a
sed -n -i p a
sed --in-place s/a/b/ c
sed 'w b' a
sed -n '/a/w b' a
sed 's/a/b/w c' a
sed 's/a/b/e' a
sed 's/a/b/gw c' a
sed '1e rm a' a
sed e a
sed -f a b
sed -e p -e 'w c' a
sed 's/[/]/b/w c' a
sed $x a
awk '{print > "a"}' b
awk '{print | "sh"}' b
awk 'BEGIN {system("rm a")}'
awk 'BEGIN {"date" | getline x}'
awk -f a b
awk -i inplace '{print}' a
gawk '@load "x"; {print}'
find . -delete
find . -exec rm {} \;
find . -execdir x \;
find . -fprint a
find . -fprintf a x
find . -fls a
find . -ok rm {} \;
find . -exec ls {} \;
ls | xargs rm
ls | xargs cat
git status
git log
git diff
git -c core.pager=x log
git -c alias.x=!rm x
git show HEAD
git commit -m a
git push
git ls-files
git config user.name a
git config --get --add a b
git --exec-path=. version
git rev-parse --abbrev-ref main
git $x
ls *.go
ls ~/a
ls {a,b}
ls a?
cat [ab]
echo $x
echo "$x"
echo ${x:-a}
echo ${x:=a}
echo $(ls)
echo $((1+1))
echo $'a'
cat <(ls)
for x in $(ls); do echo a; done
for x in a; do cat $x; done
for ((i=0;i<3;i++)); do ls; done
case $x in a) ls;; esac
[[ $x == a ]]
[[ a -eq b ]]
[[ -v x ]]
test -v 'a[$(rm b)]'
((x++))
let x=1
x=$(date)
x=$y
x=(a b)
x+=a
PATH=/tmp ls
LD_PRELOAD=a ls
PAGER=x ls
FOO=a ls
PATH=/tmp; ls
IFS=x
http_proxy=x; ls
export PATH=/tmp
export -n x
declare -i x
declare 'a[$(rm b)]=1'
read 'a[$(rm b)]'
unset 'a[$(rm b)]'
printf -v 'a[$(rm b)]' x
env FOO=a ls
env -S 'ls'
./ls
/tmp/ls
sub/ls
unknown-program
make
npm test
go test ./...
cargo build
python3 a.py
python3 -c 'print(1)'
node -e 1
perl -pe s/a/b/ c
ruby a.rb
sh
sh a.sh
ls | sh
. ./a
source a
bash -lc ls
bash -ic ls
bash --rcfile a -c ls
sh -c "$x"
sh -c 'rm a'
eval rm a
eval "$x"
trap 'rm a' EXIT
alias ls=rm
hash -p /tmp/ls ls
enable -f a b
mapfile -C x a
jobs -x rm a
nohup ls
sudo ls
ssh host ls
watch ls
script a
strace -o a ls
time -o a ls
/usr/bin/time -o a ls
flock a ls
curl x
wget x
tar xf a
dd if=a of=b
cp a b
ln -s a b
kill 1
man ls
less a
vi a
ed a
docker ps
busybox rm a
command rm a
builtin eval rm
exec rm a
coproc rm a
f() { rm a; }
if ls; then rm a; fi
ls && rm a
ls; rm a
ls & rm a
$x
"$x" a
` + "`ls`"

func TestEffects(t *testing.T) {
	for _, src := range blocks(reading) {
		if e := command.EffectsOf(src); e.Kind != command.ReadOnly {
			t.Errorf("%s: %+v", src, e)
		}
	}
	for _, src := range blocks(changing) {
		if e := command.EffectsOf(src); e.Kind == command.ReadOnly || e.Reason == "" {
			t.Errorf("%s: %+v", src, e)
		}
	}
}

// blocks are the lines of a text, with here-documents kept together.
func blocks(text string) []string {
	var out []string
	document := false
	for line := range strings.Lines(strings.TrimSpace(text)) {
		if document {
			out[len(out)-1] += line
			document = strings.TrimSpace(line) != "E"
			continue
		}
		out = append(out, strings.TrimRight(line, "\n"))
		if document = strings.Contains(line, "<<E") || strings.Contains(line, "<<'E'"); document {
			out[len(out)-1] += "\n"
		}
	}
	return out
}

// What is known to write says so, and what is not known does not pretend to be.
func TestEffectKinds(t *testing.T) {
	for src, want := range map[string]command.Kind{
		"rm a": command.Writes, "echo a > b": command.Writes, "sort -o a b": command.Writes, "sed -i s/a/b/ c": command.Writes,
		"git status": command.Writes, "ls $x": command.Writes, "frobnicate": command.Unknown, "python3 a.py": command.Unknown,
		"sh a.sh": command.Unknown, "frobnicate; rm a": command.Writes, "ls; frobnicate": command.Unknown, "echo '": command.Unknown,
	} {
		if e := command.EffectsOf(src); e.Kind != want {
			t.Errorf("%s: %+v, want %s", src, e, want)
		}
	}
}
