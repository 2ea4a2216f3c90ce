from tests.bench.libraries import main

main()
