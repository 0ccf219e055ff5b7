# Extracts the programs of a markdown file: every block fenced by ```cpp that follows a line "<!-- compile: NAME -->" is
# written to DIR/NAME.cc, and NAME is printed. A block without a main function becomes the body of one; its #include
# lines stay in front. Anything that is marked and cannot be extracted is an error, so that no example goes unchecked.
#
#   awk -v dir=DIR -f extract_code.awk README.md
function fail(reason) {
  printf "%s:%d: %s\n", FILENAME, FNR, reason > "/dev/stderr"
  failed = 1
  exit 1
}

function write_program(   file) {
  file = dir "/" name ".cc"
  printf "// Extracted from %s, line %d.\n%s", FILENAME, begins, includes > file
  if (!has_main) printf "int main() {\n" > file
  printf "#line %d \"%s\"\n%s", begins + 1, FILENAME, body > file
  if (!has_main) printf "}\n" > file
  close(file)
  print name
}

inside && /^```[ \t]*$/ {
  write_program()
  inside = 0
  name = ""
  next
}
inside {
  if ($0 ~ /^#[ \t]*include/) {
    includes = includes $0 "\n"
    body = body "\n"
  } else {
    if ($0 ~ /^int main\(/) has_main = 1
    body = body $0 "\n"
  }
  next
}
/^<!--[ \t]*compile:/ {
  if (name != "") fail("\"" name "\" is not followed by a ```cpp block")
  name = $0
  sub(/^<!--[ \t]*compile:[ \t]*/, "", name)
  if (!sub(/[ \t]*-->[ \t]*$/, "", name)) fail("the comment does not end on its line")
  if (name !~ /^[a-z][a-z0-9_]*$/) fail("\"" name "\" is no name of a program")
  if (name in taken) fail("\"" name "\" occurs twice")
  taken[name] = 1
  next
}
name != "" && /^```cpp[ \t]*$/ {
  inside = 1
  begins = FNR
  has_main = 0
  body = includes = ""
  next
}
name != "" && !/^[ \t]*$/ { fail("\"" name "\" is not followed by a ```cpp block") }

END {
  if (!failed && inside) fail("the block of \"" name "\" does not end")
  if (!failed && name != "") fail("\"" name "\" is not followed by a ```cpp block")
  exit failed
}
